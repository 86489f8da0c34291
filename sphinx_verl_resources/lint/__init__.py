"""The rules that recorded data keep beyond what a build asks of them."""
