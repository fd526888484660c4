"""Matrix multiplication: a kernel for each architecture behind one backend."""
