"""How candidates are compared: questions and prices, measuring files sealed, tuning, promotion."""
