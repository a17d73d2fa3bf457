"""The engines that translate token ids."""
