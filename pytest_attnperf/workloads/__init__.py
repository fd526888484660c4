"""Op families: one file each, with shapes, id, seeded inputs, reference, useful work."""
