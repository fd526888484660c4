"""What an execution by the interpreter of machine code counted, as text."""
