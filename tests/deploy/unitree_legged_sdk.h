// A stand-in for unitree_legged_sdk v3.3.x: the names and types of its public headers as far as docs/robot_interface.cpp
// binds them, with an A1 whose joints are at their targets. Releases differ: std::array or C arrays (STD_ARRAY), and
// protections that return a number or nothing (VOID_PROTECT).
#pragma once

#include <Python.h>

#include <array>
#include <cstdint>
#include <stdexcept>

#ifdef STD_ARRAY
#define ARRAY(type, name, size) std::array<type, size> name
#else
#define ARRAY(type, name, size) type name[size]
#endif

namespace UNITREE_LEGGED_SDK {

enum class LeggedType { Aliengo, A1 };
enum class HighLevelType { Basic, Sport };

#pragma pack(1)
struct IMU {
  ARRAY(float, quaternion, 4);
  ARRAY(float, gyroscope, 3);
  int8_t temperature;
};
struct MotorState {
  uint8_t mode;
  float q, dq, ddq, tauEst;
};
struct MotorCmd {
  uint8_t mode;
  float q, dq, tau, Kp, Kd;
};
struct LowState {
  uint8_t levelFlag;
  IMU imu;
  ARRAY(MotorState, motorState, 20);
  uint32_t tick;
  ARRAY(uint8_t, wirelessRemote, 40);
};
struct LowCmd {
  uint8_t levelFlag;
  ARRAY(MotorCmd, motorCmd, 20);
};
struct HighCmd {};
struct HighState {};
#pragma pack()

class UDP {
 public:
  explicit UDP(uint8_t level, HighLevelType = HighLevelType::Basic) : level(level) {
    in.tick = 1000;
    in.imu.quaternion[0] = 1;
    for (int i = 0; i < 12; i++) in.motorState[i].q = i % 3 == 0 ? 0.0f : i % 3 == 1 ? 1.0f : -1.75f;
  }
  void InitCmdData(HighCmd &) {}
  void InitCmdData(LowCmd &cmd) { cmd.levelFlag = level; }
  int SetSend(HighCmd &) { return 0; }
  int SetSend(LowCmd &cmd) { return out = cmd, 0; }
  void GetRecv(HighState &) {}
  void GetRecv(LowState &state) { state = in; }
  int Recv() { return wait(), 0; }
  int Send() {
    wait();
    in.tick += 5;
    for (int i = 0; i < 12; i++)
      if (out.motorCmd[i].Kp > 0) in.motorState[i].q = out.motorCmd[i].q;
    in.wirelessRemote[3] = out.motorCmd[0].tau == 7 ? 0x02 : 0;  // a test presses B by this
    return 0;
  }

 private:
  /// Python's other threads, such as the keyboard's, must be able to run during a wait for the network.
  static void wait() {
    if (PyGILState_Check()) throw std::runtime_error("the GIL is held");
  }
  uint8_t level;
  LowCmd out{};
  LowState in{};
};

class Safety {
 public:
  explicit Safety(LeggedType) {}
  void PositionLimit(LowCmd &cmd) {
    for (int i = 0; i < 12; i += 3)
      if (cmd.motorCmd[i].q > 0.802f && cmd.motorCmd[i].q < 1e9f) cmd.motorCmd[i].q = 0.802f;
  }
#ifdef VOID_PROTECT
  void PowerProtect(LowCmd &, LowState &, int) {}
  void PositionProtect(LowCmd &, LowState &, double = 0.087) {}
#else
  int PowerProtect(LowCmd &, LowState &, int) { return 0; }
  int PositionProtect(LowCmd &, LowState &, double = 0.087) { return 0; }
#endif
};

}  // namespace UNITREE_LEGGED_SDK
