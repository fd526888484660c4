"""Reads the SQLite files of rocprofv3 (rocpd)."""
