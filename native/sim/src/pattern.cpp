// The test pattern, at memory speed.
#include <cstring>

#include "kernels.h"

namespace memxsim {

namespace {

constexpr uint32_t kStep = 0x9E3779B1u;
constexpr int kLanes = 16;

struct Words {  // w(k) for consecutive k, kLanes at a time
  Words(uint64_t seed, uint64_t first) : low(static_cast<uint32_t>(seed)) {
    const auto high = static_cast<uint32_t>(seed >> 32);
    for (int i = 0; i < kLanes; ++i) sum[i] = (static_cast<uint32_t>(first) + static_cast<uint32_t>(i)) * kStep + high;
  }
  void advance() {
    for (int i = 0; i < kLanes; ++i) sum[i] += kLanes * kStep;
  }
  uint32_t low;
  uint32_t sum[kLanes];
};

uint32_t word(uint64_t seed, uint64_t k) {
  return (static_cast<uint32_t>(k) * kStep + static_cast<uint32_t>(seed >> 32)) ^ static_cast<uint32_t>(seed);
}

unsigned char pattern_byte(uint64_t seed, uint64_t at) {
  return static_cast<unsigned char>(word(seed, at >> 2) >> (8 * (at & 3)));
}

}  // namespace

void write_pattern(char* data, uint64_t bytes, uint64_t seed, uint64_t at) {
  while (bytes && (at & 3)) *data++ = static_cast<char>(pattern_byte(seed, at++)), --bytes;
  Words words(seed, at >> 2);
  for (; bytes >= 4 * kLanes; bytes -= 4 * kLanes, data += 4 * kLanes, at += 4 * kLanes) {
    uint32_t out[kLanes];
    for (int i = 0; i < kLanes; ++i) out[i] = words.sum[i] ^ words.low;
    std::memcpy(data, out, sizeof out);
    words.advance();
  }
  while (bytes--) *data++ = static_cast<char>(pattern_byte(seed, at++));
}

uint64_t count_mismatches(const char* data, uint64_t bytes, uint64_t seed, uint64_t at) {
  uint64_t wrong = 0;
  const auto check = [&] { wrong += static_cast<unsigned char>(*data++) != pattern_byte(seed, at++); };
  for (; bytes && (at & 3); --bytes) check();
  Words words(seed, at >> 2);
  for (; bytes >= 4 * kLanes; bytes -= 4 * kLanes, data += 4 * kLanes, at += 4 * kLanes) {
    uint32_t in[kLanes];
    std::memcpy(in, data, sizeof in);
    uint32_t any = 0;
    for (int i = 0; i < kLanes; ++i) {
      in[i] ^= words.sum[i] ^ words.low;
      any |= in[i];
    }
    if (any)
      for (const uint32_t difference : in)
        for (int byte = 0; byte < 4; ++byte) wrong += ((difference >> (8 * byte)) & 0xff) != 0;
    words.advance();
  }
  for (; bytes; --bytes) check();
  return wrong;
}

}  // namespace memxsim
