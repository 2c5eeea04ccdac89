#include "base/memory_reserve.h"

#include <gtest/gtest.h>

#include <new>
#include <thread>

namespace onnxtorch {
namespace {

TEST(MemoryReserve, IsThereOnceForTheThreadThatTakesIt) {
  ASSERT_TRUE(keep_memory_reserve());
  EXPECT_NO_THROW(check_memory_reserve());
  const std::new_handler handler = std::get_new_handler();
  ASSERT_NE(handler, nullptr);
  handler();  // new does so where it finds no memory, to try again after
  EXPECT_THROW(check_memory_reserve(), std::bad_alloc);
  std::thread([] { EXPECT_NO_THROW(check_memory_reserve()); }).join();
  EXPECT_THROW(handler(), std::bad_alloc);  // it is gone

  ASSERT_TRUE(keep_memory_reserve());  // it is there again
  EXPECT_NO_THROW(check_memory_reserve());
  handler();
  EXPECT_THROW(check_memory_reserve(), std::bad_alloc);
}

TEST(MemoryReserve, GoesToNewWhichThenGivesUp) {
  ASSERT_TRUE(keep_memory_reserve());
  constexpr size_t kTooMuch = size_t{1} << 62;
  EXPECT_THROW(::operator delete(::operator new(kTooMuch)), std::bad_alloc);
  EXPECT_THROW(check_memory_reserve(), std::bad_alloc);
}

}  // namespace
}  // namespace onnxtorch
