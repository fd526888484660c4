"""Fresh processes that measure: protocol, server, controller, pool."""
