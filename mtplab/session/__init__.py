"""What happened: the vocabulary that all rooms share."""
