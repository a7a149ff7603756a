// Python objects that the core calls: sources of contents, and listeners to moves.
#include <cstring>

#include <nanobind/stl/string.h>

#include "convert.h"

namespace nb = nanobind;

namespace memx {
namespace {

// A reference that may end on any thread, and that an interpreter which is gone already has no use for.
class Shared {
 public:
  explicit Shared(nb::object object) : object_(std::move(object)) {}
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  ~Shared() {
    if (!nb::is_alive() || !Py_IsInitialized()) {
      object_.release();
      return;
    }
    nb::gil_scoped_acquire held;
    object_.reset();
  }
  nb::handle get() const { return object_; }

 private:
  nb::object object_;
};

class BufferSource : public Source {
 public:
  explicit BufferSource(const nb::object& from) {
    if (PyObject_GetBuffer(from.ptr(), &view_, PyBUF_C_CONTIGUOUS)) {
      PyErr_Clear();
      throw Error(ErrorKind::kInvalidValue, "the refill source's bytes do not lie one after the other: pass a contiguous copy of it");
    }
  }
  ~BufferSource() override {
    if (!nb::is_alive() || !Py_IsInitialized()) return;
    nb::gil_scoped_acquire held;
    PyBuffer_Release(&view_);
  }
  std::uint64_t bytes() const { return static_cast<std::uint64_t>(view_.len); }
  void fill(void* into, std::uint64_t offset, std::uint64_t bytes) override {
    std::memcpy(into, static_cast<const std::byte*>(view_.buf) + offset, bytes);
  }

 private:
  Py_buffer view_{};
};

class CallableSource : public Source {
 public:
  explicit CallableSource(nb::object callable) : callable_(std::move(callable)) {}
  void fill(void* into, std::uint64_t offset, std::uint64_t bytes) override {
    nb::gil_scoped_acquire held;
    nb::object view = nb::steal(PyMemoryView_FromMemory(static_cast<char*>(into), static_cast<Py_ssize_t>(bytes), PyBUF_WRITE));
    if (!view.is_valid()) throw nb::python_error();
    callable_.get()(view, offset);
    view.attr("release")();  // whoever kept it cannot write there later
  }

 private:
  Shared callable_;
};

}  // namespace

std::shared_ptr<Source> as_source(nb::object from, std::uint64_t bytes) {
  if (PyCallable_Check(from.ptr())) return std::make_shared<CallableSource>(std::move(from));
  if (!PyObject_CheckBuffer(from.ptr()))
    throw Error(ErrorKind::kInvalidValue, "refill is neither a callable nor an object with a buffer, such as a NumPy array");
  auto source = std::make_shared<BufferSource>(from);
  if (source->bytes() < bytes)
    throw Error(ErrorKind::kInvalidValue, "the refill source has " + std::to_string(source->bytes()) + " bytes for a buffer of " +
                                              std::to_string(bytes));
  return source;
}

Resource::Listener as_listener(nb::object callable) {
  if (callable.is_none()) return {};
  auto shared = std::make_shared<Shared>(std::move(callable));
  return [shared](const std::vector<Resource::Move>& moves) {
    nb::gil_scoped_acquire held;
    try {
      nb::list out;
      for (const Resource::Move& move : moves) out.append(nb::make_tuple(move.address, move.bytes, name_of(move.place)));
      shared->get()(out);
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("a listener to moves of a memx resource");
    }
  };
}

}  // namespace memx
