"""Dense attention forward: a kernel for each architecture behind one backend."""
