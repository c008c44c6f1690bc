"""From image files to pixels: decoding, sets of images, augmentation, boxes."""
