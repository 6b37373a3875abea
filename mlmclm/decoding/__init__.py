"""How a trained model writes: left to right, or by filling masks again and again."""
