"""Image data: decoding of files, data sets, augmentation and boxes."""
