"""The paper's tables and figures as data, and the code that runs and draws them."""
