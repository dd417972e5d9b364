"""From a robot file to a body graph, and from observations and actions to the nodes that own them."""
