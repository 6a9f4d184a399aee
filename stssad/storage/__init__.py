"""Files written whole or not at all; tensors in safetensors, all else in JSON, never pickle."""
