// What AddressSanitizer is to do in these programs; it calls the function where a program has one.
extern "C" __attribute__((visibility("default"), no_sanitize_address)) const char* __asan_default_options();

// Memory that cannot be had is an exception, as it is without a sanitizer.
const char* __asan_default_options() { return "allocator_may_return_null=1"; }
