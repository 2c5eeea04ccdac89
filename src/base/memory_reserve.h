// The memory that is kept for when there is no other. Libraries allocate in functions that may not throw, in which they
// end the process where they find no memory: they find this, and what is under way stops at its next step.
#pragma once

namespace onnxtorch {

// Sees to it that there is a reserve, which `new` takes where it finds no other memory. To be called in front of work
// of this thread. Gives false where there is not even so much memory.
bool keep_memory_reserve();

// Does the same, and throws std::bad_alloc where there is not so much.
void need_memory_reserve();

// Throws std::bad_alloc where this thread has taken the reserve since.
void check_memory_reserve();

}  // namespace onnxtorch
