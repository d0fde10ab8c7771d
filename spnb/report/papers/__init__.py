"""One file a paper or study: the exhibits that are more than a measure over steps."""
