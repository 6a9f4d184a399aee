"""How a detector comes to be: the same problem in, the same `Fitted` out."""
