"""What continuous integration needs beside the gate: results as data, one comment, one commit status."""
