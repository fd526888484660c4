"""The pytest plugin. Only this room and `testing` import pytest."""
