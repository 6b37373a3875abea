"""What changes when a language model learns to fill masks instead of predicting the next token?"""

__version__ = "0.1.0"
