"""One run, case by case: right -> measure -> decide -> record. Knows nothing of pytest and nothing of torch."""
