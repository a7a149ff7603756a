#include "environment.h"

#include <cctype>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <type_traits>

namespace memxsim {

namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;
const char kKeys[] = "memory, host_memory, page, devices, seed, host_mappable, accounting_only, driver_version";

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

// Takes the digits off the front; nothing if there are none or the number is too large.
std::optional<uint64_t> take_number(std::string_view* text) {
  uint64_t value = 0;
  size_t digits = 0;
  for (; digits < text->size() && std::isdigit(static_cast<unsigned char>((*text)[digits])); ++digits) {
    const auto digit = static_cast<uint64_t>((*text)[digits] - '0');
    if (value > (UINT64_MAX - digit) / 10) return std::nullopt;
    value = value * 10 + digit;
  }
  text->remove_prefix(digits);
  return digits ? std::optional(value) : std::nullopt;
}

std::optional<uint64_t> number(std::string_view text) {
  const auto value = take_number(&text);
  return text.empty() ? value : std::nullopt;
}

// The sizes of memx: bytes, or with KiB, MiB, GiB, TiB, or p for pages where their size is given.
std::optional<uint64_t> size(std::string_view text, uint64_t page) {
  const auto value = take_number(&text);
  uint64_t unit = 0;
  if (text.empty() || text == "B") unit = 1;
  if (text == "KiB") unit = 1 << 10;
  if (text == "MiB") unit = 1 << 20;
  if (text == "GiB") unit = kGiB;
  if (text == "TiB") unit = kGiB << 10;
  if (text == "p") unit = page;
  if (!value || !unit || *value > UINT64_MAX / unit) return std::nullopt;
  return *value * unit;
}

struct Item {
  std::string_view whole, key, value;
};

Item take_item(std::string_view* rest) {
  const size_t comma = rest->find(',');
  const std::string_view whole = rest->substr(0, comma);
  *rest = comma == std::string_view::npos ? std::string_view{} : rest->substr(comma + 1);
  const size_t equals = whole.find('=');
  if (equals == std::string_view::npos) return Item{whole, {}, {}};
  return Item{whole, trimmed(whole.substr(0, equals)), trimmed(whole.substr(equals + 1))};
}

// Whether the key is one; `good`: its value is of the right kind.
bool apply(memxsim_config& c, const Item& item, bool* good) {
  const auto set = [good](auto& field, std::optional<uint64_t> value, uint64_t most) {
    *good = value && *value <= most;
    if (*good) field = static_cast<std::remove_reference_t<decltype(field)>>(*value);
    return true;
  };
  if (item.key == "memory") return set(c.device_bytes, size(item.value, c.page_bytes), UINT64_MAX);
  if (item.key == "host_memory") return set(c.host_bytes, size(item.value, c.page_bytes), UINT64_MAX);
  if (item.key == "page") return set(c.page_bytes, size(item.value, 0), UINT64_MAX);
  if (item.key == "devices") return set(c.devices, number(item.value), UINT32_MAX);
  if (item.key == "driver_version") return set(c.driver_version, number(item.value), UINT32_MAX);
  if (item.key == "host_mappable") return set(c.host_mappable, number(item.value), 1);
  if (item.key == "accounting_only") return set(c.accounting_only, number(item.value), 1);
  if (item.key != "seed") return false;
  const bool negative = !item.value.empty() && item.value.front() == '-';
  set(c.seed, number(item.value.substr(negative)), UINT64_MAX);
  if (negative) c.seed = 0 - c.seed;
  return true;
}

// Sizes may be in pages, so the page is read before the rest.
bool parse(std::string_view setting, memxsim_config& config, std::string* error) {
  for (const bool pages : {true, false}) {
    for (std::string_view rest = setting; rest.data();) {
      const Item item = take_item(&rest);
      if (pages && item.key != "page") continue;
      bool good = false;
      const bool known = apply(config, item, &good);
      if (known && good) continue;
      error->assign(1, '\'').append(item.whole).append(known ? "' has a value of the wrong kind" : "' is not one of ");
      if (!known) error->append(kKeys).append(" with a value");
      return false;
    }
  }
  return true;
}

}  // namespace

Setting from_environment(memxsim_config* config, std::string* error) {
  const char* text = std::getenv("MEMX_SIMULATE");
  const std::string_view setting = trimmed(text ? text : "");
  if (setting.empty() || setting == "0") return Setting::none;
  *config = {kGiB, 4 * kGiB, 2 << 20, 1, 0, 0, 1, 0};
  if (setting == "1") return Setting::good;
  return parse(setting, *config, error) ? Setting::good : Setting::bad;
}

}  // namespace memxsim
