// Package duetime runs tasks later: on time, once, and never lost.
//
// Nearly everyone needs three functions: [Client.Schedule] to say what is to be
// done and when, [Client.Cancel] to take it back, and [Worker.Handle] to do it.
package duetime
