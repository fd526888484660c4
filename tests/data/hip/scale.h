static inline __attribute__((device)) float scaled(float a, float x) { return a * x; }
