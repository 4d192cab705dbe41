"""Messages by their keys: looked up, listed, cancelled, and chosen by what a key begins with."""
