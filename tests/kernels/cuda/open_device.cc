// Prints what OpenDevice says of device 0, with its code.

#include <iostream>

#include "kernels/cuda/runtime.h"

int main() { std::cout << refrain::kernels::cuda::OpenDevice(0).status() << std::endl; }
