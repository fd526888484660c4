"""Problems that other projects publish, as gated cases: read from their files, judged by this package's judge."""
