// PyTorch asks itself whether the user wants cuDNN, by this member function. Loaded before PyTorch this answer is found
// first, and its own convolutions, recurrences and attention are used: cuDNN needs a real driver.
namespace at {

class Context {
 public:
  bool userEnabledCuDNN() const;
  bool userEnabledCuDNNSDP() const;
};

bool Context::userEnabledCuDNN() const { return false; }
bool Context::userEnabledCuDNNSDP() const { return false; }

}  // namespace at
