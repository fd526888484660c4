"""What is not needed to gate, each tool with the reports that only it writes."""
