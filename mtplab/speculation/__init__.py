"""The theory of speculative decoding, and decoding itself over any runtime."""
