#ifndef REFRAIN_ENGINE_TEXT_JINJA_CALL_CHECK_H_
#define REFRAIN_ENGINE_TEXT_JINJA_CALL_CHECK_H_

#include <map>
#include <string>

namespace refrain::engine::jinja {

// Finds the calls of a template that no rendering could make: of a method that values do not have,
// or of a function that there is not, so that a template beyond the subset is refused before it
// serves. The parser tells it what names it meets, then has it check, once.
//
// Not refused is a name that may stand for something callable (a macro, a variable, an entry of a
// namespace or dict of that name), and one that is also mentioned without being called: there the
// template may ask first (`f is defined`). One thread.
class CallCheck {
 public:
  // A name, or behind a dot; and then that it was called.
  void MeetName(const std::string& name) { ++names_[name].mentions; }
  void MeetAttribute(const std::string& name) { ++attributes_[name].mentions; }
  void MeetNameCall(const std::string& name, int line) { names_[name].Call(line); }
  void MeetAttributeCall(const std::string& name, int line) { attributes_[name].Call(line); }

  // What jinja2 gives a macro beside its parameters is refused where it is asked for.
  void EnterMacro() { ++macro_depth_; }
  void LeaveMacro() { --macro_depth_; }
  bool IsOfMacro(const std::string& name) const;

  // The template gives the name a value.
  void MeetVariable(const std::string& name) { names_[name].has_value = true; }
  void MeetEntry(const std::string& name) { attributes_[name].has_value = true; }

  // Throws TemplateError with line and name.
  void Check() const;

 private:
  struct Uses {
    int mentions = 0;
    int calls = 0;
    int first_call_line = 0;
    bool has_value = false;

    void Call(int line) {
      if (calls++ == 0) first_call_line = line;
    }
    bool only_called() const { return calls > 0 && calls == mentions && !has_value; }
  };

  int macro_depth_ = 0;
  std::map<std::string, Uses> names_;
  std::map<std::string, Uses> attributes_;
};

}  // namespace refrain::engine::jinja

#endif  // REFRAIN_ENGINE_TEXT_JINJA_CALL_CHECK_H_
