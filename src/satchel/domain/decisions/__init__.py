"""Every change that a session can take, each as a pure decision. New behaviour is a new decision: it touches no store."""
