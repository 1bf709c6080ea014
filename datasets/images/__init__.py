"""Small images with a class to predict, one column per pixel.

`_images.py` declares the pixels once and reads the IDX format of MNIST and Fashion-MNIST.
"""
