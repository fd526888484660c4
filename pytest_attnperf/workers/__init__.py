"""Worker processes that measure: protocol, server, controller, pool."""
