"""Judges results of another machine anew, without measuring."""
