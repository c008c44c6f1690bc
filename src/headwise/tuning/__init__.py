"""Fine-tuning: initialise from a pretrained model, freeze parameters, add LoRA, swap mixers."""
