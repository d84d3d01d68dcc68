"""How far placements are from the best there are: random problems, their exact optimum, a bound for real models."""
