"""Documents of your own: building a corpus, searching it."""
