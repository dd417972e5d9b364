// `robot_interface` for the Unitree A1: the part of unitree_legged_sdk v3.3.x that body_transformer uses. docs/a1.md
// describes the build. Arrays (C arrays or std::array, depending on the release) become lists: arrays of motors become
// lists of references, arrays of numbers become lists of copies.
#include <pybind11/pybind11.h>

#include "unitree_legged_sdk/unitree_legged_sdk.h"

namespace py = pybind11;
using namespace UNITREE_LEGGED_SDK;

template <class Array>
py::list copies(const Array &array) {
  py::list list;
  for (auto value : array) list.append(value);
  return list;
}

template <class Array>
py::list references(Array &array, py::handle owner) {
  py::list list;
  for (auto &entry : array) list.append(py::cast(&entry, py::return_value_policy::reference_internal, owner));
  return list;
}

PYBIND11_MODULE(robot_interface, module) {
  py::enum_<LeggedType>(module, "LeggedType").value("A1", LeggedType::A1);
  py::enum_<HighLevelType>(module, "HighLevelType").value("Basic", HighLevelType::Basic);

  py::class_<MotorCmd>(module, "MotorCmd")
      .def_readwrite("mode", &MotorCmd::mode)
      .def_readwrite("q", &MotorCmd::q)
      .def_readwrite("dq", &MotorCmd::dq)
      .def_readwrite("tau", &MotorCmd::tau)
      .def_readwrite("Kp", &MotorCmd::Kp)
      .def_readwrite("Kd", &MotorCmd::Kd);
  py::class_<MotorState>(module, "MotorState")
      .def_readonly("q", &MotorState::q)
      .def_readonly("dq", &MotorState::dq)
      .def_readonly("tauEst", &MotorState::tauEst);
  py::class_<IMU>(module, "IMU")
      .def_property_readonly("quaternion", [](const IMU &imu) { return copies(imu.quaternion); })
      .def_property_readonly("gyroscope", [](const IMU &imu) { return copies(imu.gyroscope); });

  py::class_<LowCmd>(module, "LowCmd")
      .def(py::init([] { return new LowCmd(); }))  // all zeros
      .def_readwrite("levelFlag", &LowCmd::levelFlag)
      .def_property_readonly("motorCmd",
                             [](py::object self) { return references(self.cast<LowCmd &>().motorCmd, self); });
  py::class_<LowState>(module, "LowState")
      .def(py::init([] { return new LowState(); }))
      .def_readonly("tick", &LowState::tick)
      .def_readonly("imu", &LowState::imu)
      .def_property_readonly("wirelessRemote", [](const LowState &state) { return copies(state.wirelessRemote); })
      .def_property_readonly("motorState",
                             [](py::object self) { return references(self.cast<LowState &>().motorState, self); });

  py::class_<UDP>(module, "UDP")
      .def(py::init<uint8_t, HighLevelType>())
      .def("InitCmdData", [](UDP &udp, LowCmd &cmd) { udp.InitCmdData(cmd); })
      .def("SetSend", [](UDP &udp, LowCmd &cmd) { return udp.SetSend(cmd); })
      .def("GetRecv", [](UDP &udp, LowState &state) { udp.GetRecv(state); })
      // the GIL is released while these wait for the network, so that the thread of the keyboard runs
      .def("Send", &UDP::Send, py::call_guard<py::gil_scoped_release>())
      .def("Recv", &UDP::Recv, py::call_guard<py::gil_scoped_release>());
  py::class_<Safety>(module, "Safety")  // newer releases return a number, older ones nothing
      .def(py::init<LeggedType>())
      .def("PositionLimit", &Safety::PositionLimit)
      .def("PowerProtect", &Safety::PowerProtect)
      .def("PositionProtect", &Safety::PositionProtect);
}
