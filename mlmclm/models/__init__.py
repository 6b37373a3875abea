"""Networks from Hugging Face configs, and how the rest of the project talks to them."""
