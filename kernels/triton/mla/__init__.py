"""Latent attention, in prefill and in decode."""
