// Just enough JSON to write the control interface's answers.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace memxsim {

inline std::string json_quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", c);
      out += escaped;
    } else {
      out += c;
    }
  }
  return out + '"';
}

class JsonObject {
 public:
  void add(std::string_view key, uint64_t value) { add_raw(key, std::to_string(value)); }
  void add(std::string_view key, double value) {
    char digits[40];
    std::snprintf(digits, sizeof digits, "%.17g", value);
    add_raw(key, digits);
  }
  void add(std::string_view key, std::string_view value) { add_raw(key, json_quoted(value)); }
  void add_raw(std::string_view key, std::string_view value) {
    body_ += body_.empty() ? "" : ", ";
    body_ += json_quoted(key);
    body_ += ": ";
    body_ += value;
  }
  std::string text() const { return "{" + body_ + "}"; }

 private:
  std::string body_;
};

class JsonArray {
 public:
  void add_raw(std::string_view value) {
    body_ += body_.empty() ? "" : ", ";
    body_ += value;
  }
  std::string text() const { return "[" + body_ + "]"; }

 private:
  std::string body_;
};

}  // namespace memxsim
