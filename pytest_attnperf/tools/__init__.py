"""Tools that the gate does not need, each with the reports that only it writes."""
