// memx._native's face of the adapter below PyTorch's pluggable allocator.
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>

#include "convert.h"
#include "torch.h"

namespace nb = nanobind;

namespace memx {

void bind_torch(nb::module_& m) {
  m.def("torch_configure",
        [](nb::handle device_limit, nb::handle host_limit, const std::string& reuse, bool oversubscribe, nb::handle page,
           bool framework) {
          torch::configure(as_config(0, device_limit, host_limit, reuse, false, oversubscribe, page, framework, "cost"));
        },
        nb::arg("device_limit"), nb::arg("host_limit"), nb::arg("reuse"), nb::arg("oversubscribe"), nb::arg("page"),
        nb::arg("framework"));
  m.def("torch_resource", &torch::resource, nb::arg("device"), nb::rv_policy::reference, NoGil());
  m.def("torch_resources",
        [] {
          nb::dict out;
          for (const auto& [device, resource] : torch::resources())
            out[nb::int_(device)] = nb::cast(resource, nb::rv_policy::reference);
          return out;
        });
  m.def("torch_record_from_birth", &torch::record_from_birth);
  m.def("torch_hooks", &torch::hooks);
}

}  // namespace memx
