"""Reviews training scripts in plain PyTorch: holds them at their first backward pass and replays their step."""
