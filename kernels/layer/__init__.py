"""One attention layer over every attention backend, and the cache of keys and values that it writes to."""
