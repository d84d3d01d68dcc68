"""What all pages share: readable without scripts, with nothing from outside."""
